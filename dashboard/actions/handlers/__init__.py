"""How each kind of action inspects its subjects, plans and executes."""
