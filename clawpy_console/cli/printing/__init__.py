"""Documents of verbs as text: aligned, coloured in a terminal only, plain in a pipe (SPEC 9.7, 9.8).

One module for each group of verbs; `render.PRINTERS` names the function for each verb. Colour never carries meaning
alone, and text from outside loses its control characters here.
"""
