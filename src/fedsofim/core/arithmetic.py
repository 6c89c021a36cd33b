"""Floats are to be what IEEE 754 says they are: every bound here is about those, and that NaN is told from a number.

XLA can be told to compute as if there were no NaN and no infinity, and as if sums were exact (fast math). Then a record
that is not finite is not found to be, and no bound on a rounding holds: with its flags one such record moved a sum of
clipped vectors by a thousand clips. No test of a number helps, since what tests it is computed the same way.
"""

from jax._src import compiler

from fedsofim.errors import Refused


def check_arithmetic() -> None:
    """Refused where XLA was told to use fast math, in whatever way: its own settings are asked."""
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    if options.executable_build_options.debug_options.xla_cpu_enable_fast_math:
        raise Refused(
            "XLA is told to use fast math, under which a NaN is not found and no bound on a sum holds; start again "
            "without xla_cpu_enable_fast_math in XLA_FLAGS"
        )
