"""`fedsofim predict` and `model`: use a trained model, and export one from wherever it was trained."""

from pathlib import Path
from typing import Annotated

import typer

from fedsofim.data.schema import read_schema
from fedsofim.deploy.checkpoint import CHECKPOINT
from fedsofim.errors import InputError
from fedsofim.files import check_free_file
from fedsofim.tasks import Task
from fedsofim.trained import Trained, load_model
from fedsofim.trained.measures import SAID, Measures, in_words
from fedsofim.trained.tables import predict_file, write_predictions

Own = Annotated[str | None, typer.Option("--model", help="Your own model's file, if it was trained with one.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]


def predict(
    model: Annotated[Path, typer.Argument(help="a model's folder, or the folder of a federation's job")],
    table: Annotated[Path, typer.Argument(help="new records: .csv, .tsv, .parquet, or .npz with an array x")],
    out: Annotated[Path, typer.Option(help="the .csv to write: a label and the probabilities of each record")],
    schema: Annotated[
        Path | None,
        typer.Option(
            show_default="the schema of the training",
            help="how your site writes this table: decimals, dates, words, gaps",
        ),
    ] = None,
    own: Own = None,
    force: Force = False,
) -> None:
    """Predict new records with a trained model. Columns are found by their names; wrong ones are told all at once."""
    check_free_file(out, force)
    known = opened(model, schema if _is_job(model) else None, own)
    if schema is not None and not _is_job(model):
        known = known.reading(read_schema(schema))
    found = predict_file(known, table)
    write_predictions(found, out)
    for remark in found.remarks:
        typer.echo(f"note: {remark}", err=True)
    print(f"wrote {out}: {len(found.labels)} records")
    if found.measured is not None:
        print(_agreement(found.task, found.measured))


def _agreement(task: Task, measured: Measures) -> str:
    """How right predictions are, where the table has the truth too."""
    if task.by_class:
        return f"the table has labels too: {in_words('accuracy', measured['accuracy'])} are as predicted"
    told = ", ".join(f"{SAID[k][0].removesuffix(' (%)')} {in_words(k, v)}" for k, v in measured.items())
    return f"the table has the truth too: {told}"


def model(
    source: Annotated[Path, typer.Argument(help="a model's folder, or the folder of a federation's job")],
    out: Annotated[Path | None, typer.Option(help="write the model into this folder")] = None,
    onnx: Annotated[Path | None, typer.Option(help="export to this .onnx file (extra onnx)")] = None,
    schema: Annotated[Path | None, typer.Option(help="of a job: the schema its nodes read their tables by")] = None,
    own: Own = None,
    force: Force = False,
) -> None:
    """A trained model's card; --out writes it as a folder, from a federation's job too, --onnx exports it."""
    found = opened(source, schema, own)
    if onnx is not None:
        check_free_file(onnx, force)
    if out is not None:
        print(f"wrote {found.save(out, force=force)}; next: fedsofim predict {out} TABLE --out predictions.csv")
    if onnx is not None:
        print(f"wrote {found.to_onnx(onnx)}")
    if out is None and onnx is None:
        print(found.card)


def _is_job(source: Path) -> bool:
    return (source / CHECKPOINT).is_file()


def opened(source: Path, schema: Path | None, own: str | None) -> Trained:
    """A model from its folder, or from a job's checkpoint."""
    if _is_job(source):
        from fedsofim.deploy.trained_job import trained_of_job

        return trained_of_job(source / CHECKPOINT, None if schema is None else read_schema(schema))
    if schema is not None:
        raise InputError(f"{source}: is no folder of a job; a saved model has its schema already")
    return load_model(source, model=own)
