"""What the page makes of keys and values with schemas that were given as files: Avro and Protocol Buffers."""
