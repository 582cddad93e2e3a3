"""Who is here: organisations, memberships with a role, API tokens, and what each role may see."""
