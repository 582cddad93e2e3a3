"""Accuracy sets with a known truth: what a model is asked, and what the right answer is.

In: a seed and a size. Out: samples, their truth, and a score that anyone can work out again. A set
is made from its seed alone, so its digest in a plan fixes it. A truth never reaches a system under
test: the file holds both, and a measuring process reads the samples only.
"""
