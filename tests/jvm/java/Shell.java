import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs main methods in one virtual machine, one after the other, since a start costs more than
 * most of them. Each line of the input is {"main", "args", "stdin"}; each line of the output is
 * {"code", "out", "err"}. Only mains that leave through Kafka's Exit come back from it.
 */
public final class Shell {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Turnout OUT = new Turnout(System.out);
    private static final Turnout ERR = new Turnout(System.err);

    /** A stream for good, since some keep the one they found first; only where it leads changes. */
    private static final class Turnout extends OutputStream {
        private volatile OutputStream target;

        Turnout(OutputStream target) {
            this.target = target;
        }

        OutputStream turn(OutputStream to) {
            OutputStream from = target;
            target = to;
            return from;
        }

        @Override
        public void write(int octet) throws IOException {
            target.write(octet);
        }

        @Override
        public void write(byte[] octets, int offset, int length) throws IOException {
            target.write(octets, offset, length);
        }
    }

    private static final class Left extends RuntimeException {
        Left() {
            super("exit", null, false, false);
        }
    }

    private Integer code;
    private final List<Runnable> hooks = new ArrayList<>();

    private synchronized void leave(int status) {
        if (code == null) {
            code = status;
        }
        throw new Left();
    }

    private synchronized int code() {
        return code == null ? 0 : code;
    }

    private void run(String main, String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> leave(status));
        Exit.setHaltProcedure((status, message) -> leave(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Left)) {
                thrown.getCause().printStackTrace();
                code = 1;
            }
        }
        for (Runnable hook : hooks) {
            hook.run();
        }
    }

    private static ObjectNode answer(JsonNode request) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        OutputStream out = OUT.turn(said);
        OutputStream err = ERR.turn(complained);
        byte[] input = request.get("stdin").asText().getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(input));
        Shell shell = new Shell();
        try {
            shell.run(
                request.get("main").asText(),
                JSON.convertValue(request.get("args"), String[].class));
        } finally {
            System.out.flush();
            System.err.flush();
            OUT.turn(out);
            ERR.turn(err);
        }
        return JSON.createObjectNode()
            .put("code", shell.code())
            .put("out", said.toString(StandardCharsets.UTF_8))
            .put("err", complained.toString(StandardCharsets.UTF_8));
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }
}
