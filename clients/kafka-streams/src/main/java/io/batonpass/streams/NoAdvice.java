package io.batonpass.streams;

/** There is no complete answer from any coordinator; the message says why. */
final class NoAdvice extends Exception {
    private static final long serialVersionUID = 1L;

    NoAdvice(String message) {
        super(message);
    }
}
