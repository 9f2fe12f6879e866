"""Extensions of the site generator."""
