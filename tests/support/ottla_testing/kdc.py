"""A key distribution centre of Kerberos (KDC) for tests: MIT Kerberos's programs, with a folder and a port of its own.

The services and files of the system are not touched. Programs that should see it get `environ`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

REALM = "OTTLA.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_CONFIG = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_KDC_CONFIG = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
"""
START_SECONDS = 20.0


def missing_programs() -> list[str]:
    """Returns the programs that this machine lacks."""
    return [name for name in PROGRAMS if find(name) is None]


def find(name: str) -> str | None:
    """Returns the path of a program. Debian's are in /usr/sbin, which users do not search."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Kdc:
    """A running KDC."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.config = folder / "krb5.conf"
        values = {"realm": REALM, "port": port, "folder": folder}
        self.config.write_text(_CONFIG.format(**values))
        (folder / "kdc.conf").write_text(_KDC_CONFIG.format(**values))
        self.environ = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'no-tickets'}",
            "KRB5RCACHEDIR": str(folder),
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        with (folder / "out").open("w") as out:
            command = [find("krb5kdc") or "krb5kdc", "-n"]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **self.environ})
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(f"the KDC did not start: {(folder / 'out').read_text()}") from None
                time.sleep(0.05)

    def keytab(self, *principals: str) -> Path:
        """Adds principals with random keys; returns a keytab with them."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for name in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} -norandkey {name}")
        return path

    def tickets(self, principal: str, keytab: Path, lifetime: str = "1h") -> Path:
        """Returns a ticket cache of a principal, as `kinit` makes one."""
        path = self.folder / f"{principal.replace('/', '-')}.tickets"
        self._run("kinit", "-c", str(path), "-l", lifetime, "-k", "-t", str(keytab), principal)
        return path

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait(20)

    def _run(self, name: str, *arguments: str) -> None:
        command: Sequence[str] = [find(name) or name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environ})
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stdout}{done.stderr}")
