# PySpark, beside a broker: reads its topics over the wire and its files, see docs/spark/reading.md.
#   docker build -f docker/spark.Dockerfile -t ottla-spark:dev .
FROM python:3.11-slim AS build
COPY . /src
RUN python3 -m venv /opt/ottla \
 && /opt/ottla/bin/python3 -m pip install --no-cache-dir --disable-pip-version-check '/src[pipeline,plot]'

FROM python:3.11-slim
COPY --from=build /opt/ottla /opt/ottla
# The broker's user, whose files it reads.
RUN useradd --uid 1000 --create-home --home-dir /home/appuser --shell /bin/bash appuser
ENV PATH=/opt/ottla/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1
USER appuser
WORKDIR /home/appuser
CMD ["ottla", "pipeline", "--help"]
