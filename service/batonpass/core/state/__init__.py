"""What a group is: its values and settings, the records that change them, and the fold of records into a group.

Begin with ``model`` (hard state: what the records add up to) and ``soft`` (what members and Kafka last reported).
"""
