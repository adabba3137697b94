"""Commands on files: `ottla dump`, `formats`, `verify`, `repair`, `import-dir`."""
