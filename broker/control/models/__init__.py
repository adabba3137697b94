"""The JSON that the control plane takes and returns, as msgspec structs.

Bodies and queries are decoded into them. Together with the responses they are the schemas of the OpenAPI document: the
name of a struct, its docstring and the descriptions of its fields stand there.
"""
