"""Smaller or faster variant: weights, any new learning, running mode."""

from dataclasses import dataclass, replace

PRUNINGS = ("magnitude_50", "magnitude_80", "2:4")
"""Shares of the smallest weights that become zero, or two of every four."""
RECIPES: tuple[tuple[str, ...], ...] = (
    ("bf16",),
    ("int8_weight_only",),
    ("int8_dynamic",),
    ("fp8_weight_only",),
    ("fp8_dynamic",),
)
"""Single steps of `outrider.dataops.model_kinds.recipes` that are tried."""
STUDENT = "student"
SAME = "same"


@dataclass(frozen=True, slots=True)
class Variant:
    """Composition of prune, distil and quantise, in this order."""

    weights: str = SAME
    """``same`` as the champion's, one of :data:`PRUNINGS`, ``student`` for the smaller architecture, or the
    name of weights that were given."""
    is_distilled: bool = False
    """Whether these weights then learned the champion's answers to stored traffic; a student always did."""
    recipe: tuple[str, ...] = ()
    """Steps at load."""

    @property
    def name(self) -> str:
        """Steps joined by ``+``, such as ``2:4+distil+bf16``; ``champion`` where there is none."""
        weights = [] if self.weights == SAME else [self.weights]
        distilled = ["distil"] if self.is_distilled and self.weights != STUDENT else []
        return "+".join([*weights, *distilled, *self.recipe]) or "champion"

    @property
    def made(self) -> tuple[str, bool]:
        """Inputs of the variant's weights, which variants of one recipe share."""
        return self.weights, self.is_distilled

    @property
    def is_pruned(self) -> bool:
        """True where the weights hold zeros on purpose."""
        return self.weights in PRUNINGS

    @property
    def steps(self) -> int:
        """Number of steps in the composition."""
        return len(self.recipe) + (self.weights != SAME) + (self.is_distilled and self.weights != STUDENT)


CHAMPION = Variant()


def neighbours(
    variant: Variant,
    *,
    prunings: tuple[str, ...] = PRUNINGS,
    recipes: tuple[tuple[str, ...], ...] = RECIPES,
    given: tuple[str, ...] = (),
    has_student: bool = False,
    can_distil: bool = True,
) -> list[Variant]:
    """Variants with one more step, first quantisation, which needs no training.

    Examples
    --------
    >>> [each.name for each in neighbours(Variant("2:4"), recipes=(("bf16",),))]
    ['2:4+bf16', '2:4+distil']
    """
    found = [] if variant.recipe else [replace(variant, recipe=recipe) for recipe in recipes]
    if variant.recipe == ("bf16",) and ("int8_weight_only",) in recipes:
        found.append(replace(variant, recipe=("bf16", "int8_weight_only")))
    if variant.weights == SAME:
        found += [replace(variant, weights=name) for name in given if not variant.recipe]
        if has_student and can_distil:
            found.append(replace(variant, weights=STUDENT, is_distilled=True))
        found += [replace(variant, weights=pruning) for pruning in prunings]
    if variant.is_pruned and not variant.is_distilled and can_distil:
        found.append(replace(variant, is_distilled=True))
    return found
