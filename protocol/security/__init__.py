"""What both sides of a secured connection share: stores of keys, certificates, JAAS entries, SCRAM, OAUTHBEARER."""
