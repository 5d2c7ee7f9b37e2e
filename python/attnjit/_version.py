# SPDX-License-Identifier: Apache-2.0
"""The version of attnjit. CMakeLists.txt and the wheel's build read it here."""
__version__ = "0.2.0"
