"""The JSON that the control plane accepts and returns, as msgspec structs.

Bodies and queries are decoded into them. Together with the responses they are the schemas of the OpenAPI document, with
the names of structs, their docstrings and the descriptions of fields.
"""
