"""The schemes an experiment can compare, a file each or a file a family; `registry` finds them."""

from workloads.schemes.registry import Parameter, ResolvedScheme, Scheme, SchemeError, listing, parse_scheme, resolve, schemes

__all__ = ["Parameter", "ResolvedScheme", "Scheme", "SchemeError", "listing", "parse_scheme", "resolve", "schemes"]
