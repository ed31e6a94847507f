"""Where tasks belong: the target assignment.

``place`` gets what each member has, and how warm it is there. It returns where every task should end up. ``types`` has
the request and the answer. Nothing of the core is known here: ``core.target`` makes the request and follows the answer.

Placement is one min-cost flow, solved by OR-tools. Copies flow: those that change members, and those that have no
member yet. Copies that no rule distinguishes are one node, a *class*: they have the same home and subtopology, and
the same members may have them or are warm for them. So the network grows with the number of members and of special
tasks, but not with the number of tasks.

    homeless class -------------------------------.
                                                   v
    member -> (member, subtopology) -> class -> block of members -> (member, subtopology) -> member -> end
      (gives)        evenness           |        that are alike          evenness          (takes)   balance
                                        |------> a member that is warm, or was the target --^
                                        `------> waits

The supply of a member is what it has above its floor. The supply of a homeless class is its copies. Every copy ends at
a member or, if there is no room, waits. As long as every member may have every task, only members above their floor
give copies, and only members below their ceiling take any. Limits, pins, draining members and topology epochs appear
as capacities of arcs, and as arcs that are left out.

Costs are levels (``flow``): no sum of lower costs outweighs a higher one. For actives, most important first:

| Level | Arc | Rule |
|---|---|---|
| wait | class to where it waits | a task that fits nowhere waits; a running one only as a last resort |
| balance | member to the end: ceiling 1, beyond 3 | load in proportion to capacity: floor or ceiling |
| move | class to anything: 1 | the fewest moves, so a member that has the ceiling keeps it |
| warming | class to where its warmup runs: -1 | the destination of a running warmup stays |
| height | ceiling: rank of (floor + 1) / capacity | the ceiling goes to the lowest load per capacity |
| unready | class to a member that is not caught up: 1 | the warmest destination gets the ceiling of equal loads |
| cold | class to a member with nothing: 1; unknown: 2 | the same, among those that are not caught up |
| restore | class to a member: rank of what is left | the same: the copy with least left to restore |
| previous | class to its previous target: -1 | between placements equal so far the previous target wins |
| newcomer | ceiling of a member that has something: 1 | a newcomer gets the tasks that become free |
| stateless | ceiling: rank of running stateless tasks per capacity | saves a stateless task from moving |
| even | (member, subtopology): rings around the even part | even subtopologies, as far as the rules above allow |
| even | class to a block, beyond each member's share of an owner's copies: 1 | an owner's standbys go to many members |
| load | ceiling: rank of floor / capacity, then of the load now | of equal heights the lowest load first |
| size | member to class: size of state by powers of four | tasks with little state are given away first |
| order | ceiling: the member's place | of members equal in everything the first by id |

If several flows are still equal, the solver's choice stands. It depends only on the order of the arcs: members by id,
classes by home, subtopology, size and first task. The flow of a class is dealt to its tasks by size, then in the order
of the topology. Another version of the library may choose another optimum.

The number of tasks per member (``quotas``) is exact: whole numbers in proportion to capacity, which bound tasks and
limits change as little as possible. If topology epochs or tags keep members from having some tasks, the flow leaves
members above their ceiling, or, beside those who may have little, the highest ones next to lower ones that may have
nothing of theirs. They, and all to whom they could give, are levelled among themselves, the others among themselves,
and the flow is solved again with these quotas, until the highest of each part could give to all of it, and no quota
counts copies that wait. What is beyond a quota costs more in the parts with the higher loads (4 more for each).

Tasks of **unequal weights** are placed one weight after the other, each by the same flow. How many of each weight a
member gets is decided before (``amounts``): no move of one task, and no exchange of two, may lower the higher of two
loads per capacity. Then the quotas of the flow are these numbers. A weight that only one task has needs no flow.
**Stateless tasks** are placed so too, on top of the load of the stateful ones.

**Standbys** (``standbys``) are placed in the same way as actives, with these differences. The other copies of a task
are part of its class, because no member may have two. Blocks are what ``rack_aware_tags`` distinguish; a worse block
costs a level (``apart``) right below waiting. Balance means the lowest number of copies per capacity, actives
included; the ceiling goes to the lowest (at the level ``part``). A copy that exists, or that an active leaves behind,
costs no move. Each pair of owner and member has its even part (``even``), which spreads an owner's copies; in groups
with too many members for that, each block takes its share, and dealing spreads that, with members in turn. In a small
group every member gives and takes. In larger groups the members that have to exchange do so first. Exchanges follow
until one leads to where copies were.

For example, a member joins ten with 100 equal tasks. Its quota is 9.09, so it must have 9. The others have 10 each,
which is their ceiling, so nothing else has to move: the bound is nine moves, one each from nine of the ten members.
"""
