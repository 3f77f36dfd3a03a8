"""Makes a package of holdfast.py, with the marker without which type checkers ignore its types (PEP 561)."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py


class Build(build_py):
    def run(self) -> None:
        package = pathlib.Path(self.build_lib, "holdfast")
        self.mkpath(str(package))
        self.copy_file("holdfast.py", str(package / "__init__.py"))
        (package / "py.typed").touch()

    def get_source_files(self) -> list[str]:
        return ["holdfast.py"]


setup(cmdclass={"build_py": Build})
