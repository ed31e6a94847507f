package io.batonpass.streams;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as maps, lists, text, numbers and truth values, by the tokens of Jackson.
 *
 * <p>Jackson's own mapper would take as long to load as a coordinator has for its answer, in a process that asks for the
 * first time.
 */
final class Json {
    private static final int MAX_DEPTH = 50;
    private static final JsonFactory TOKENS = new JsonFactory().enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION);

    private Json() { }

    /**
     * Return the one value that these bytes are.
     *
     * @throws IOException if they are anything else: nothing, two values, a key twice, or deeper than any answer is
     */
    static Object read(byte[] bytes) throws IOException {
        try (JsonParser parser = TOKENS.createParser(bytes)) {
            Object value = value(parser, parser.nextToken(), MAX_DEPTH);
            if (parser.nextToken() != null) {
                throw new IOException("something follows the value");
            }
            return value;
        }
    }

    private static Object value(JsonParser parser, JsonToken token, int depth) throws IOException {
        if (token == null) {
            throw new IOException("it ends too early");
        }
        return switch (token) {
            case START_OBJECT -> object(parser, inside(depth));
            case START_ARRAY -> list(parser, inside(depth));
            case VALUE_STRING -> parser.getText();
            case VALUE_NUMBER_INT, VALUE_NUMBER_FLOAT -> parser.getNumberValue();
            case VALUE_TRUE -> true;
            case VALUE_FALSE -> false;
            case VALUE_NULL -> null;
            default -> throw new IOException("unexpected " + token);
        };
    }

    private static int inside(int depth) throws IOException {
        if (depth == 0) {
            throw new IOException("it is deeper than " + MAX_DEPTH);
        }
        return depth - 1;
    }

    private static Map<String, Object> object(JsonParser parser, int depth) throws IOException {
        Map<String, Object> object = new LinkedHashMap<>();
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
            object.put(name, value(parser, parser.nextToken(), depth));
        }
        return object;
    }

    private static List<Object> list(JsonParser parser, int depth) throws IOException {
        List<Object> list = new ArrayList<>();
        for (JsonToken token = parser.nextToken(); token != JsonToken.END_ARRAY; token = parser.nextToken()) {
            list.add(value(parser, token, depth));
        }
        return list;
    }

    /** Return a value as bytes; what is no map, list, text, number or truth value is an error. */
    static byte[] written(Object value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (JsonGenerator generator = TOKENS.createGenerator(bytes)) {
            write(generator, value);
        }
        return bytes.toByteArray();
    }

    private static void write(JsonGenerator generator, Object value) throws IOException {
        if (value instanceof Map<?, ?> map) {
            generator.writeStartObject();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                generator.writeFieldName(entry.getKey().toString());
                write(generator, entry.getValue());
            }
            generator.writeEndObject();
        } else if (value instanceof Iterable<?> list) {
            generator.writeStartArray();
            for (Object each : list) {
                write(generator, each);
            }
            generator.writeEndArray();
        } else if (value instanceof Number number) {
            generator.writeNumber(number.longValue());
        } else if (value instanceof Boolean truth) {
            generator.writeBoolean(truth);
        } else if (value instanceof String text) {
            generator.writeString(text);
        } else {
            throw new IOException("no JSON: " + value);
        }
    }
}
