package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.streams.processor.TaskId;
import org.junit.jupiter.api.Test;

class KeepOwnersTest {
    private static Decision decide(Applications application) {
        return KeepOwners.decide(application.snapshot(), Duration.ofSeconds(2));
    }

    private static Set<TaskId> actives(Decision decision, int member) {
        return decision.tasks().get(Applications.process(member)).active();
    }

    private static Set<TaskId> copies(Decision decision, int member) {
        return decision.tasks().get(Applications.process(member)).copies();
    }

    @Test
    void ownersKeepWhatTheyHaveHoweverUneven() {
        Applications application = new Applications().stateful("0_0", "0_1", "0_2").stateless("1_0");
        application.member(1).running("0_0", "0_1", "0_2").actives.addAll(Applications.ids("1_0"));
        application.member(2);
        Decision decision = decide(application);
        assertEquals(Applications.ids("0_0", "0_1", "0_2", "1_0"), actives(decision, 1));
        assertEquals(Applications.ids(), actives(decision, 2));
        assertEquals(Optional.of(Duration.ofSeconds(2)), decision.followup());
        assertEquals(false, decision.everyone());
    }

    @Test
    void anOwnerThatStillRestoresKeepsItsTask() {
        Applications application = new Applications().stateful("0_0");
        application.member(1).restoring("0_0", 500_000);
        application.member(2).copy("0_0", 3);
        assertEquals(Applications.ids("0_0"), actives(decide(application), 1));
    }

    @Test
    void whatHasNoOwnerGoesToTheLeastLag() {
        Applications application = new Applications().stateful("0_0", "0_1", "0_2");
        application.member(1).running("0_0", "0_1").copy("0_2", 50);
        application.member(2).copy("0_2", 60);
        assertEquals(Applications.ids("0_0", "0_1", "0_2"), actives(decide(application), 1));
        application.member(2).copy("0_2", 40);
        assertEquals(Applications.ids("0_2"), actives(decide(application), 2));
    }

    @Test
    void aLagThatNobodyKnowsComesLast() {
        Applications application = new Applications().stateful("0_0");
        application.member(1).copy("0_0", Applications.UNKNOWN);
        application.member(2);
        assertEquals(Applications.ids("0_0"), actives(decide(application), 2));
    }

    @Test
    void whatNobodyHasGoesToTheFewestForEachThreadAndThenByName() {
        Applications application = new Applications().stateful("0_0", "0_1", "0_2").stateless("1_0", "1_1", "1_2");
        application.member(1);
        application.member(2).threads(2);
        Decision decision = decide(application);
        assertEquals(2, actives(decision, 1).size());
        assertEquals(4, actives(decision, 2).size());
        assertTrue(actives(decision, 1).contains(TaskId.parse("0_0")));
    }

    @Test
    void ofTwoWhoClaimATaskTheOneThatRunsKeepsIt() {
        Applications application = new Applications().stateful("0_0");
        application.member(1).restoring("0_0", 5);
        application.member(2).running("0_0");
        assertEquals(Applications.ids("0_0"), actives(decide(application), 2));
    }

    @Test
    void asManyCopiesStayAsThereAreToBe() {
        Applications application = new Applications().stateful("0_0", "0_1").standbys(1).warmups(1);
        application.member(1).running("0_0", "0_1");
        application.member(2).copy("0_0", 10).copy("0_1", 900);
        application.member(3).copy("0_0", 20).copy("0_1", 700);
        application.member(4).copy("0_0", 5).copy("0_1", 800);
        Decision decision = decide(application);
        // Standbys: 0_0 on 4 and 0_1 on 3. Beyond these one copy, the one that lacks least: 0_0 on 2.
        assertEquals(Applications.ids("0_0"), copies(decision, 4));
        assertEquals(Applications.ids("0_1"), copies(decision, 3));
        assertEquals(Applications.ids("0_0"), copies(decision, 2));
        assertEquals(Applications.ids(), copies(decision, 1));
    }

    @Test
    void aCopyThatTakesItsTaskOverIsNoCopyAnyMore() {
        Applications application = new Applications().stateful("0_0").standbys(1);
        application.member(1).copy("0_0", 10);
        application.member(2).copy("0_0", 20);
        Decision decision = decide(application);
        assertEquals(Applications.ids("0_0"), actives(decision, 1));
        assertEquals(Applications.ids(), copies(decision, 1));
        assertEquals(Applications.ids("0_0"), copies(decision, 2));
    }

    @Test
    void itIsCompleteForApplicationsOfAllShapes() {
        Random random = new Random(23);
        for (int round = 0; round < 2_000; round++) {
            Applications application = Applications.random(random);
            Applications.assertComplete(application.state(), decide(application).assignment(Optional.empty()));
        }
    }
}
