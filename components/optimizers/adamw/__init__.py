"""AdamW (Loshchilov and Hutter 2019)."""
