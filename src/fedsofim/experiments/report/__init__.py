"""From rows to what people read: tables, statistics, figures and one HTML page. Nothing here trains anything."""
