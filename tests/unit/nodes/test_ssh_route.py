"""What the SSH config says of a host: honoured, followed, refused or named."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from sweep.model.errors import NodeError
from sweep.nodes.ssh_config import SshFiles
from sweep.nodes.ssh_route import Hop, as_argument, route


def files(tmp_path: Path, config: str, **others: str) -> SshFiles:
    """A user with this config and other files beside it."""
    (tmp_path / "config").write_text(config)
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    return SshFiles(
        configs=(str(tmp_path / "config"), str(tmp_path / "system")),
        known_hosts=("/me/known_hosts",),
        system_known_hosts=("/system/known_hosts",),
        identities=(),
        agent_socket="/run/agent",
    )


def hops(tmp_path: Path, target: str, config: str, **others: str) -> tuple[Hop, ...]:
    """The way to a target."""
    return route(target, files(tmp_path, config, **others))


def hop(tmp_path: Path, target: str, config: str, **others: str) -> Hop:
    """The target itself."""
    return hops(tmp_path, target, config, **others)[-1]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("gpu", (getpass.getuser(), "gpu", 22, "gpu")),
        ("ann@gpu", ("ann", "gpu", 22, "gpu")),
        ("ann@gpu:2222", ("ann", "gpu", 2222, "[gpu]:2222")),
        ("gpu:2222", (getpass.getuser(), "gpu", 2222, "[gpu]:2222")),
        ("ssh://ann@gpu:2222", ("ann", "gpu", 2222, "[gpu]:2222")),
        ("ann@[fe80::1]:2222", ("ann", "fe80::1", 2222, "[fe80::1]:2222")),
        ("10.0.0.7", (getpass.getuser(), "10.0.0.7", 22, "10.0.0.7")),
    ],
)
def test_a_host_without_a_section(
    tmp_path: Path, target: str, expected: tuple[str, str, int, str]
) -> None:
    """User and port may stand in the text itself."""
    found = hop(tmp_path, target, "")
    assert (found.user, found.hostname, found.port, found.key_name) == expected
    assert found.known_hosts == ("/me/known_hosts", "/system/known_hosts")
    assert found.agent_socket == "/run/agent"


def test_everything_that_is_honoured(tmp_path: Path) -> None:
    """Each setting of a section arrives, with tokens expanded."""
    config = """
        Host gpu
          HostName %h.lab.example   # comment
          Port = 2222
          User ann
          IdentityFile /keys/%h
          IdentityFile "/keys/with blank"
          IdentitiesOnly yes
          IdentityAgent /run/other
          UserKnownHostsFile /a /b
          GlobalKnownHostsFile /c
          HostKeyAlias GPU-A
          ConnectTimeout 3
    """
    found = hop(tmp_path, "gpu", config)
    assert found == Hop(
        alias="gpu",
        hostname="gpu.lab.example",
        port=2222,
        user="ann",
        key_name="gpu-a",
        known_hosts=("/a", "/b", "/c"),
        identity_files=("/keys/gpu.lab.example", "/keys/with blank"),
        identities_only=True,
        agent_socket="/run/other",
        connect_timeout_s=3,
    )


def test_the_text_outweighs_the_file_and_the_user_the_system(tmp_path: Path) -> None:
    """The first value counts; a section matched by the given user sees that user."""
    config = "Host gpu\n User ann\n Port 1\nMatch user bob\n HostName for-bob\n"
    found = hop(tmp_path, "bob@gpu:7", config, system="Host *\n Port 9\n HostName of-system\n")
    assert (found.user, found.port, found.hostname) == ("bob", 7, "for-bob")
    assert hop(tmp_path, "gpu", config).port == 1


def test_files_that_keep_no_host_keys_are_not_used(tmp_path: Path) -> None:
    """/dev/null would leave every host unknown for ever: the usual files are used."""
    found = hop(tmp_path, "gpu", "UserKnownHostsFile /dev/null\nStrictHostKeyChecking no\n")
    assert found.known_hosts == ("/me/known_hosts", "/system/known_hosts")
    assert found.not_honoured == (
        "gpu: StrictHostKeyChecking no (host keys are always checked)",
        "gpu: UserKnownHostsFile /dev/null (host keys are always checked)",
    )
    assert found.unchecked == ("StrictHostKeyChecking no", "UserKnownHostsFile /dev/null")
    assert hop(tmp_path, "gpu", "StrictHostKeyChecking ask\n").unchecked == ()


@pytest.mark.parametrize(
    ("text", "socket"), [("none", None), ("SSH_AUTH_SOCK", "/run/agent"), ("/x", "/x")]
)
def test_the_agent_can_be_chosen(tmp_path: Path, text: str, socket: str | None) -> None:
    """None, the running one, or another."""
    assert hop(tmp_path, "gpu", f"IdentityAgent {text}\n").agent_socket == socket


def test_jump_hosts_are_passed_in_order(tmp_path: Path) -> None:
    """Each with its own section; of several only the first one's own ProxyJump counts."""
    config = """
        Host gpu
          ProxyJump ann@first:2201,second
        Host first
          HostName 10.0.0.1
          ProxyJump outer
        Host second
          HostName 10.0.0.2
          ProxyJump ignored
          IdentityFile /keys/second
    """
    found = hops(tmp_path, "gpu", config)
    assert [(h.alias, h.user, h.address) for h in found] == [
        ("outer", getpass.getuser(), "outer:22"),
        ("first", "ann", "10.0.0.1:2201"),
        ("second", getpass.getuser(), "10.0.0.2:22"),
        ("gpu", getpass.getuser(), "gpu:22"),
    ]
    assert found[2].identity_files == ("/keys/second",)


def test_a_jump_in_a_circle_is_refused(tmp_path: Path) -> None:
    """`Host *` with a ProxyJump catches the jump host too; `none` ends it."""
    config = "Host *\n ProxyJump bastion\n"
    with pytest.raises(NodeError, match="circle: gpu -> bastion -> bastion"):
        hops(tmp_path, "gpu", config)
    assert len(hops(tmp_path, "gpu", "Host bastion\n ProxyJump none\n" + config)) == 2


def test_includes_are_followed(tmp_path: Path) -> None:
    """Globs in order, relative to the directory of the config, nested; missing ones are none."""
    found = hop(
        tmp_path,
        "gpu",
        "Include part_* missing\nHost gpu\n Port 3\nUser last\n",
        part_a="Host gpu\n HostName from-a\n Include nested\n",
        part_b="Host gpu\n HostName from-b\n Port 2\n",
        nested="User nested\n",
    )
    assert (found.hostname, found.port, found.user) == ("from-a", 2, "nested")
    assert found.not_honoured == ()


def test_an_include_does_not_change_the_section_around_it(tmp_path: Path) -> None:
    """What follows belongs to the section that stood there before the include."""
    config = "Host other\n Include part\n Port 7\nHost gpu\n User ann\n"
    assert hop(tmp_path, "other", config, part="User x\n").port == 7
    assert hop(tmp_path, "other", config, part="User x\n").user == "x"
    assert hop(tmp_path, "gpu", config, part="User x\n").port == 22
    assert hop(tmp_path, "gpu", config, part="User x\n").user == "ann"


def test_sections_of_a_file_that_is_included_in_a_section_are_named(tmp_path: Path) -> None:
    """Two conditions at once are left out, unless the outer one always holds."""
    part = "Host gpu\n Port 5\n"
    left = hop(tmp_path, "gpu", "Host other\n Include part\n", part=part)
    assert left.port == 22
    assert left.not_honoured == (
        f"{tmp_path / 'part'}:1: Host gpu (a section in a file that is included in a section)",
    )
    assert hop(tmp_path, "gpu", "Host *\n Include part\n", part=part).port == 5


def test_an_include_of_itself_is_an_error(tmp_path: Path) -> None:
    """Not an endless loop."""
    with pytest.raises(NodeError, match="nested more than 16 files deep"):
        hop(tmp_path, "gpu", "Include config\n")


def test_commands_of_match_exec_are_not_run(tmp_path: Path) -> None:
    """The section is left out and named, also when the command would succeed."""
    proof = tmp_path / "ran"
    config = f'Match host gpu exec "touch {proof}"\n Port 9\nHost gpu\n User ann\n'
    found = hop(tmp_path, "gpu", config)
    assert not proof.exists()
    assert (found.port, found.user) == (22, "ann")
    assert [text.rpartition(" (")[2] for text in found.not_honoured] == ["not evaluated: exec)"]


def test_unknown_criteria_of_match_do_not_match(tmp_path: Path) -> None:
    """Rather left out and named than taken as met."""
    found = hop(tmp_path, "gpu", "Match localnetwork 10.0.0.0/8\n HostName elsewhere\n")
    assert found.hostname == "gpu"
    assert "not evaluated: localnetwork" in found.not_honoured[0]


def test_settings_without_effect_are_named(tmp_path: Path) -> None:
    """Those that might be missed, for this host only; conveniences of terminals are not."""
    config = """
        Host gpu
          Ciphers aes128-ctr
          SetEnv A=b
          ForwardAgent yes
          ServerAliveInterval 30
        Host other
          BindAddress 1.2.3.4
    """
    found = hop(tmp_path, "gpu", config)
    assert found.not_honoured == ("gpu: ciphers aes128-ctr", "gpu: setenv A=b")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("ProxyCommand ssh -W %h:%p bastion", "ProxyCommand is not supported: ssh -W gpu:22 bas"),
        ("Port ssh", "gpu: port 'ssh' in the SSH config is not a number"),
        ("Host gpu\n\nnonsense", "config:3: nonsense: not `keyword value`"),
        ("Match host", "cannot be used: Missing parameter"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, config: str, message: str) -> None:
    """With the file and line, or the setting."""
    with pytest.raises(NodeError) as caught:
        hop(tmp_path, "gpu", config + "\n")
    assert message in caught.value.message


def test_a_proxy_command_of_none_is_no_command(tmp_path: Path) -> None:
    """It overrides one of a later section."""
    config = "Host gpu\n ProxyCommand none\nHost *\n ProxyCommand nc %h %p\n"
    assert hop(tmp_path, "gpu", config).hostname == "gpu"


@pytest.mark.parametrize(
    "target", ["", "a b@", "@gpu", "gpu:port", "-oProxyCommand=x:1:2", "gpu b", "*", "gpu?"]
)
def test_texts_that_are_no_host_are_refused(tmp_path: Path, target: str) -> None:
    """Before anything is looked up."""
    with pytest.raises(NodeError, match="is not a host"):
        hop(tmp_path, target, "")


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_cannot_be_is_refused(tmp_path: Path, port: str) -> None:
    """The resolver would take the remainder, and another door would be tried."""
    with pytest.raises(NodeError, match=f"there is no port {port}"):
        hop(tmp_path, f"gpu:{port}", "")


@pytest.mark.parametrize(
    ("target", "argument"),
    [
        ("gpu-a", "gpu-a"),
        ("root@gpu-a", "root@gpu-a"),
        ("root@gpu-a:2222", "ssh://root@gpu-a:2222"),
        ("ssh://gpu-a:22", "ssh://gpu-a:22"),
        ("[::1]:22", "ssh://[::1]:22"),
    ],
)
def test_a_target_is_written_as_ssh_takes_it(target: str, argument: str) -> None:
    """A command that is printed can be run."""
    assert as_argument(target) == argument
