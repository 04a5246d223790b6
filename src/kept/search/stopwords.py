"""Words that say nothing about what is looked for. Dropped from a query unless nothing else is left."""

from __future__ import annotations

ENGLISH = frozenset(
    """
    a about above after again all also am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for
    from further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd
    i'll i'm i've if in into is isn't it it's its itself just let's me more most my myself no nor not of off on
    once only or other our ours ourselves out over own please same shall she should shouldn't so some such tell
    than that that's the their theirs them themselves then there there's these they they're this those through
    to too under until up upon us very was wasn't we we'd we're we've were weren't what what's when where
    where's which while who who's whom whose why will with won't would wouldn't you you'd you'll you're you've
    your yours yourself yourselves
    """.split()
)
