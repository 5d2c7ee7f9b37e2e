# SPDX-License-Identifier: Apache-2.0
"""The version of the package. tests/python/package_test.py holds it to CMakeLists.txt."""
__version__ = "0.1.0"
