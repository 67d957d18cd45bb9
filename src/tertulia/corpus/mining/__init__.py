"""Mining at scale: three pure stages over complete threads, run by any engine that can map a function over tasks."""
