"""The beginning of an SSH connection: the machine shows its key, then the user logs in."""

from __future__ import annotations

from collections.abc import Sequence

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from sweep.model.errors import NodeError
from sweep.nodes.host_keys import HostKey, KnownKey, check_host_key, known_keys
from sweep.nodes.ssh_login import LinkLostError, log_in
from sweep.nodes.ssh_route import Hop


def greet(transport: paramiko.Transport, hop: Hop, default_identities: Sequence[str]) -> None:
    """Check a hop's key and log in, each within its connect timeout.

    Raises NodeError when the key or the login is refused, LinkLostError when nobody answers.
    """
    known = known_keys(hop.key_name, hop.known_hosts)
    transport.banner_timeout = hop.connect_timeout_s
    transport.auth_timeout = hop.connect_timeout_s
    _prefer(transport, known)
    try:
        transport.start_client(timeout=hop.connect_timeout_s)
        shown = transport.get_remote_server_key()
    except IncompatiblePeer as error:
        raise NodeError(
            f"{hop.alias}: {hop.address} and sweep share no algorithm: {error}",
            hint="its SSH server is too old (OpenSSH 7.2 or newer is needed)",
        ) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        said = str(error) or type(error).__name__
        raise LinkLostError(f"no SSH connection to {hop.address}: {said}") from error
    offered = HostKey(shown.get_name(), shown.asbytes())
    check_host_key(
        hop.alias, hop.key_name, offered, known, add_to=hop.known_hosts[0], unchecked=hop.unchecked
    )
    log_in(transport, hop, default_identities)


def _prefer(transport: paramiko.Transport, known: Sequence[KnownKey]) -> None:
    """Ask for a kind of host key that is known, so that another kind does not look changed."""
    kinds = {line.key.kind for line in known if not line.marker}
    if "ssh-rsa" in kinds:
        kinds |= {"rsa-sha2-512", "rsa-sha2-256"}
    options = transport.get_security_options()
    options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)
