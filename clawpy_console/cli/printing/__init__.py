"""Documents of verbs as text for people: aligned, coloured only in a terminal, plain when piped (SPEC 9.7, 9.8).

One module a group of verbs; `render` finds the one for a verb. Colour never carries meaning alone. Whatever comes from
outside loses its control characters here once more.
"""
