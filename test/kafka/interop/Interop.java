import io.confluent.parallelconsumer.PCRetriableException;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group that is run by Parallel Consumer in key order, for the tests of this folder.
 *
 * <p>Arguments: the brokers' address, the group, the topic, then the keys whose handler does not come to an end (none: all records
 * are finished). Standard output has a JSON object a line:
 *
 * <pre>
 * {"what":"started","partition":0,"offset":7,"delivery":1}
 * {"what":"ended","partition":0,"offset":7}
 * {"what":"abandoned","partition":0,"offset":8}
 * {"what":"committed","partition":0,"offset":8,"metadata":"bgAA"}
 * {"what":"closed"}
 * </pre>
 *
 * <p>where "abandoned" is the end of a handler that would not have come to one.
 *
 * <p>"close" on standard input makes it leave in good order; "halt", or the end of the input, ends the process at once, as kill -9
 * does.
 */
public class Interop {
    public static void main(String[] arguments) throws IOException {
        String brokers = arguments[0], group = arguments[1], topic = arguments[2];
        Set<String> stuck = Set.copyOf(List.of(arguments).subList(3, arguments.length));

        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", brokers);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("interceptor.classes", List.of(Commits.class));

        CountDownLatch leaving = new CountDownLatch(1);
        var options = ParallelConsumerOptions.<String, String>builder()
                .consumer(new KafkaConsumer<>(settings))
                .ordering(ProcessingOrder.KEY)
                .commitMode(CommitMode.PERIODIC_CONSUMER_SYNC)
                .commitInterval(Duration.ofMillis(200))
                .maxConcurrency(16)
                // Else the records behind a stuck one, once they are a few times the concurrency, keep it from reading on.
                .messageBufferSize(10_000)
                // A stuck record that is let go at the end is not tried again.
                .retryDelayProvider(record -> Duration.ofHours(1))
                .build();
        var consumer = ParallelStreamProcessor.createEosStreamProcessor(options);
        consumer.subscribe(List.of(topic));
        consumer.poll(context -> {
            ConsumerRecord<String, String> record = context.getSingleConsumerRecord();
            String where = "\"partition\":" + record.partition() + ",\"offset\":" + record.offset();
            int delivery = context.getSingleRecord().getNumberOfFailedAttempts() + 1;
            tell("{\"what\":\"started\"," + where + ",\"delivery\":" + delivery + "}");
            if (stuck.contains(record.key())) {
                try {
                    leaving.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                tell("{\"what\":\"abandoned\"," + where + "}");
                throw new PCRetriableException("not finished"); // without a stack trace in the log
            }
            tell("{\"what\":\"ended\"," + where + "}");
        });

        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (!"close".equals(input.readLine())) {
            Runtime.getRuntime().halt(137);
        }
        leaving.countDown();
        consumer.closeDontDrainFirst();
        tell("{\"what\":\"closed\"}");
        System.exit(0);
    }

    /** Writes a line whole, from whichever thread. */
    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Told of each commit that the brokers have confirmed. */
    public static class Commits implements ConsumerInterceptor<String, String> {
        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            // The metadata is base64: there is nothing to escape.
            offsets.forEach((partition, offset) -> tell("{\"what\":\"committed\",\"partition\":" + partition.partition()
                    + ",\"offset\":" + offset.offset() + ",\"metadata\":\"" + offset.metadata() + "\"}"));
        }

        @Override
        public ConsumerRecords<String, String> onConsume(ConsumerRecords<String, String> records) {
            return records;
        }

        @Override
        public void configure(Map<String, ?> settings) {}

        @Override
        public void close() {}
    }
}
