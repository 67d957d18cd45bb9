"""The table of metrics: functions from ranks to one value per exchange. Plugins join through `tertulia.metrics`."""

from tertulia.core.registry import Registry

METRICS = Registry("metric", "tertulia.metrics")

METRICS.add("hits@1", "tertulia.metrics.ranking:hits_at_1", "share of true replies ranked first")
METRICS.add("hits@2", "tertulia.metrics.ranking:hits_at_2", "share of true replies among the first two")
METRICS.add("hits@5", "tertulia.metrics.ranking:hits_at_5", "share of true replies among the first five")
METRICS.add("mrr", "tertulia.metrics.ranking:reciprocal_rank", "mean of 1 / rank of the true reply")
