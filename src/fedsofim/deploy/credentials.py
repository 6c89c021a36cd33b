"""Keys and certificates of a federation: one authority, the server's certificate, a key for each node."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEARS = 2
_PEM = serialization.Encoding.PEM


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A certificate authority of the federation's own: ca.key (keep it offline) and ca.crt."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedsofim federation")])
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certify=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_secret(folder / "ca.key", _private(key, serialization.PrivateFormat.PKCS8))
    (folder / "ca.crt").write_bytes(certificate.public_bytes(_PEM))
    return key, certificate


def server_certificate(
    folder: Path, hosts: Sequence[str], ca: tuple[ec.EllipticCurvePrivateKey, x509.Certificate]
) -> None:
    """server.key and server.crt for these host names and addresses, which clients check."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    issuer = ca[0].public_key()
    certificate = (
        _builder(name, ca[1].subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certify=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        .sign(ca[0], hashes.SHA384())
    )
    write_secret(folder / "server.key", _private(key, serialization.PrivateFormat.PKCS8))
    (folder / "server.crt").write_bytes(certificate.public_bytes(_PEM))


def node_key(folder: Path, name: str) -> bytes:
    """node.key, by which the server knows the node (OpenSSH form, as Flower wants it); returns the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.OpenSSH
    write_secret(folder / "node.key", _private(key, form))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    text = public + f" {name}\n".encode()
    (folder / "node.pub").write_bytes(text)
    return text


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
    )


def _usage(certify: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certify, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=certify, crl_sign=certify, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, serialization.NoEncryption())
