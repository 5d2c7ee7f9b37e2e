# SPDX-License-Identifier: Apache-2.0
"""attnjit inside other libraries. Each module imports its library when it is imported."""
