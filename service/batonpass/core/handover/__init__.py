"""How the group gets to its target, and when it is looked at again.

Begin with the tables of ``owner`` (which member has the active); ``step`` puts the parts together.
"""
