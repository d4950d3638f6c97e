"""Everything a person sees: verbs, screens, dialogs, themes. Imports from `engine` only its face."""
