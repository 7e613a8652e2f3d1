"""Federated computations: functions over values that live at many clients and at a server."""

from __future__ import annotations
