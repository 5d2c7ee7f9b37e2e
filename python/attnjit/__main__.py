# SPDX-License-Identifier: Apache-2.0
"""python -m attnjit: the attnjit command."""
from ._command import main

main()
