package io.batonpass.streams.job;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Arguments of a program: {@code --name value}, some of them more than once. */
final class Arguments {
    private final Map<String, List<String>> given = new HashMap<>();

    Arguments(String[] words, List<String> known) {
        for (int at = 0; at < words.length; at += 2) {
            String name = words[at].replaceFirst("^--", "");
            if (!words[at].startsWith("--") || !known.contains(name) || at + 1 == words.length) {
                throw new IllegalArgumentException("what is " + words[at] + "? Known are, each with a value: " + known);
            }
            given.computeIfAbsent(name, any -> new ArrayList<>()).add(words[at + 1]);
        }
    }

    String one(String name) {
        String value = one(name, null);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String one(String name, String otherwise) {
        List<String> values = all(name);
        return values.isEmpty() ? otherwise : values.get(values.size() - 1);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(one(name, String.valueOf(otherwise)));
    }

    List<String> all(String name) {
        return given.getOrDefault(name, List.of());
    }
}
