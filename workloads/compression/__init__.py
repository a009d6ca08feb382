"""How a gradient becomes a smaller payload: codecs (what is sent) and memories (what becomes of the rest).

A codec turns a flat tensor into one self-describing buffer and back; a memory adds what was left out to the next gradient.
"""
