"""What interrupted jobs have left: found and removed by the job `runs`, which needs no Spark."""
