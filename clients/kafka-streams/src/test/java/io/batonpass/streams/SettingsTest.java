package io.batonpass.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class SettingsTest {
    private static final Map<String, String> LEAST =
        Map.of("application.id", "app", "batonpass.url", "http://coordinator:8420");

    private static Settings with(String key, Object value) {
        Map<String, Object> configs = new HashMap<>(LEAST);
        configs.put(key, value);
        return Settings.of(configs);
    }

    @Test
    void anAddressIsEnough() {
        Settings settings = Settings.of(LEAST);
        assertEquals(List.of(), settings.problems());
        assertEquals(Settings.Mode.ASSIGN, settings.mode());
        assertEquals("app", settings.group());
        assertEquals(List.of(URI.create("http://coordinator:8420")), settings.urls());
        assertEquals(Optional.empty(), settings.token());
        assertEquals(Duration.ofSeconds(2), settings.timeout());
        assertEquals(Duration.ofSeconds(2), settings.retry());
        assertEquals(16 * 1024 * 1024, settings.maxAnswerBytes());
    }

    @Test
    void aMisspelledNameIsAProblem() {
        Settings settings = with("batonpass.mod", "shadow");
        assertEquals(1, settings.problems().size());
        assertTrue(settings.problems().get(0).startsWith("batonpass.mod is no setting; there are batonpass.group, "));
        assertEquals(List.of(), with("consumer.batonpass.mod", "x").problems());
    }

    @Test
    void severalAddressesAreTriedInTheirOrder() {
        Settings settings = with("batonpass.url", " http://one:1/, https://two/path// ,");
        assertEquals(List.of(URI.create("http://one:1"), URI.create("https://two/path")), settings.urls());
        assertEquals(List.of(), settings.problems());
    }

    @Test
    void valuesNeedNotBeText() {
        Settings settings = with("batonpass.timeout.ms", 700);
        assertEquals(Duration.ofMillis(700), settings.timeout());
        assertEquals(Duration.ofSeconds(10),
            Settings.of(Map.of("batonpass.mode", "shadow", "batonpass.timeout.ms", 700)).timeout());
        assertEquals("other", with("batonpass.group", "other").group());
    }

    @ParameterizedTest
    @CsvSource({
        "batonpass.mode, on",
        "batonpass.mode, ASSIGN",
        "batonpass.url, ''",
        "batonpass.url, coordinator:8420",
        "batonpass.url, ftp://coordinator",
        "batonpass.url, http://user:secret@coordinator",
        "batonpass.url, http://coordinator?query",
        "batonpass.url, http:// coordinator",
        "batonpass.timeout.ms, 49",
        "batonpass.timeout.ms, 10001",
        "batonpass.timeout.ms, soon",
        "batonpass.retry.ms, 0",
        "batonpass.max.answer.bytes, 99999999999999999999",
        "batonpass.group, a/b",
        "batonpass.group, a b",
    })
    void whatIsWrongIsSaidAndNotThrown(String key, String value) {
        List<String> problems = with(key, value).problems();
        assertEquals(1, problems.size(), problems.toString());
        assertTrue(problems.get(0).startsWith(key), problems.toString());
        assertFalse(problems.get(0).contains("secret"), problems.toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {".", "..", "a\u00a0b", "a\u2007b", "a\u202fb", "a\u0085b", "a\u001cb", "a\u3000b", "a\ufffdb", "a\ud83db"})
    void aNameThatNoCoordinatorTakesIsWrong(String name) {
        assertEquals(1, with("batonpass.group", name).problems().size());
    }

    @ParameterizedTest
    @ValueSource(strings = {"...", ".a", "a.", "gr\u00fc\u00dfe#1%2F", "\ud83d\ude00"})
    void anyOtherNameIsRight(String name) {
        assertEquals(List.of(), with("batonpass.group", name).problems());
        assertEquals(List.of(), with("batonpass.group", "\ud83d\ude00".repeat(255)).problems());
    }

    @Test
    void oneBadAddressAmongGoodOnesIsSaidToo() {
        assertEquals(1, with("batonpass.url", "http://one,two").problems().size());
    }

    @Test
    void withoutAskingNoAddressIsNeeded() {
        assertEquals(List.of(), Settings.of(Map.of("batonpass.mode", "off")).problems());
        assertEquals(2, Settings.of(Map.of("batonpass.mode", "shadow")).problems().size());
        assertEquals(2, Settings.of(Map.of()).problems().size());
    }

    @ParameterizedTest
    @ValueSource(strings = {"batonpass.token.file"})
    void aTokenOfAFileIsReadEachTime(String key, @TempDir Path folder) throws IOException {
        Path file = folder.resolve("token");
        Settings settings = with(key, file.toString());
        Files.writeString(file, "one\n");
        assertEquals(Optional.of("one"), settings.currentToken());
        Files.writeString(file, "two\n");
        assertEquals(Optional.of("two"), settings.currentToken());
    }

    @Test
    void aTokenIsNotShown() {
        Settings settings = with("batonpass.token", "secret");
        assertEquals(Optional.of("secret"), settings.token());
        assertFalse(settings.toString().contains("secret"));
    }

    @Test
    void namesOfTheOwnProcessAreTheClientIdAndTheInstanceId() {
        Map<String, Object> configs = new HashMap<>(LEAST);
        configs.put("client.id", "a-StreamThread-1-consumer");
        configs.put("group.instance.id", "pod-0-1");
        assertEquals(List.of("a-StreamThread-1-consumer", "pod-0-1"), Settings.of(configs).ownNames());
    }
}
