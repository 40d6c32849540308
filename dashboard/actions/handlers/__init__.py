"""How each kind of action looks at its subjects, plans and executes."""
