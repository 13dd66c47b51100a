"""How stages run: what each depends on (`resolve`), the frame around its work (`stage`), and how it starts on several
processes (`launch`)."""
