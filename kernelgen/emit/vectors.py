"""Polynomials for exp and GELU on vectors of float32.

In: nothing. Out: coefficients. Never here: C.

Polynomials were fitted with weighted least squares (Lawson iteration) in float64 and rounded to
float32. Errors against float64, in units of 2^-24: exp poly5 1.6, poly6 0.04 (relative, before
rounding); GELU poly13 3.6, poly14 2.4 (of |x|, with rounding).
"""

from __future__ import annotations

from collections.abc import Mapping

EXP: Mapping[str, tuple[float, ...]] = {
    "poly5": (
        1.0,
        0.9999997019767761,
        0.4999914765357971,
        0.1666763871908188,
        0.04189816117286682,
        0.008290271274745464,
    ),
    "poly6": (
        1.0,
        1.0,
        0.4999999403953552,
        0.16666430234909058,
        0.04166800528764725,
        0.008374195545911789,
        0.0013843605993315578,
    ),
}
"""exp(r) on |r| <= ln(2)/2, rising powers of r."""

GELU_EDGE = 5.3
"""Beyond it the normal distribution function is 0 or 1 to within float32."""

GELU: Mapping[str, tuple[float, ...]] = {
    "poly13": (
        0.1333925873041153,
        -0.06651831418275833,
        0.049261897802352905,
        -0.03959500417113304,
        0.0321187749505043,
        -0.025243714451789856,
        0.018672144040465355,
        -0.013393111526966095,
        0.009604721330106258,
        -0.005469465162605047,
        0.0019203941337764263,
        -0.0014271460240706801,
        0.0016701706917956471,
        -0.0006543371709994972,
    ),
    "poly14": (
        0.1333925575017929,
        -0.06651850789785385,
        0.04926416650414467,
        -0.03958889842033386,
        0.03207945451140404,
        -0.025298602879047394,
        0.018926354125142097,
        -0.013184253126382828,
        0.008826321922242641,
        -0.0058519188314676285,
        0.0031382322777062654,
        -0.0010937689803540707,
        0.000729211897123605,
        -0.0007653284119442105,
        0.00028459198074415326,
    ),
}
"""(normal distribution function(x) - 1/2) / x, rising powers of s = 2 (x / edge)^2 - 1, |x| <=
GELU_EDGE.
"""
