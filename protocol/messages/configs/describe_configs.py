"""DescribeConfigs: request and response of API key 32. KIP-133, KIP-226, KIP-569."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    """v1 can request synonyms, v3 documentation."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)

    @group
    class DescribeConfigsResource:
        resource_type: Int8
        resource_name: Text
        configuration_keys: list[Text] | None


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    """v1 adds sources and synonyms, v3 types and documentation."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]

    @group
    class DescribeConfigsResult:
        error_code: Int16
        error_message: Text | None
        resource_type: Int8
        resource_name: Text
        configs: list[DescribeConfigsResourceResult]

        @group
        class DescribeConfigsResourceResult:
            name: Text
            value: Text | None
            read_only: Bool
            is_default: Bool = field("0", default=False)
            config_source: Int8 = field("1+", default=-1, ignorable=True)
            is_sensitive: Bool
            synonyms: list[DescribeConfigsSynonym] = field("1+", default=list, ignorable=True)
            config_type: Int8 = field("3+", default=0, ignorable=True)
            documentation: Text | None = field("3+", default="", ignorable=True)

            @group
            class DescribeConfigsSynonym:
                name: Text
                value: Text | None
                source: Int8
