"""Every limit of the frames and the row, with the sentence that explains its size."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

ENTRY_BYTES_MAX = 1 * MIB  # key + headers + value; larger things belong in files
BATCH_ENTRIES_MAX = 65_536  # so that a count fits where the indexes keep it
BATCH_BYTES_MAX = 4 * MIB  # a body in memory a few times over is still small
BUNDLE_BYTES_MAX = 4 * MIB  # or one batch, whichever is larger: one write, one disk record
BUNDLE_COMMANDS_MAX = 16_384  # a place names a command with 14 bits; a node makes smaller ones
FRAME_BYTES_MAX = 8 * MIB  # a batch, its head, and room for what a later version adds
HELLO_BYTES_MAX = 1 * KIB  # a stranger may make us hold this much
HELLO_SECONDS_MAX = 5.0  # and for this long
FRAME_BYTES_PER_SECOND_MIN = 1 * KIB  # a frame once begun has to come at least this fast
FRAME_SECONDS_GRACE = 5.0  # and may begin with a pause: TCP sends again after up to some seconds
HEAD_BYTES_MAX = 65_535  # its length is a u16
HEAD_DEPTH_MAX = 8  # heads are flat; a policy or a view nests a few levels
NUMBER_LIMIT = 1 << 63  # every whole number of a head is below it: it fits i64 everywhere
HEAD_ITEMS_MAX = 256  # of the outer array: a kind has about twenty fields, later versions more
KEYED_ENTRIES_MAX = 16_000  # of a keyed batch: its head holds a u32 for each, in HEAD_BYTES_MAX
IDS_PER_BATCH_MAX = 256  # `id=` is for single entries; 256 of ID_BYTES_MAX fit a head
ID_BYTES_MAX = 64
WRITER_BYTES_MAX = 64  # the name of a writer of stages
CODEC_MAX = 255  # 0 plain, 1 zstd; from 16 on foreign, kept as they came
HEADERS_MAX = 128  # of an entry: names and values together are HEAD_ITEMS_MAX
COMMIT_STAGES_MAX = 4_096  # of one commit: a stage is at most 14 bytes in its head
CLIENT_REQUESTS_MAX = 64  # in flight
CLIENT_BYTES_MAX = 16 * MIB  # in flight
CLIENT_ACCEPTED_MAX = 1_024  # accepted batches of a client that wait to be told they are ordered
ORIGIN_BUNDLES_MAX = 64  # undelivered
ORIGIN_BYTES_MAX = 8 * MIB  # undelivered
OUTPUT_BYTES_MAX = 16 * MIB  # queued to a connection (a link: of one member), then it is closed
CONNECTIONS_MAX = 16_384  # or the file limit less CONNECTIONS_SPARE_FILES, if that is smaller
HOST_CONNECTIONS_MAX = 1_024  # of them, those of one other machine
CONNECTIONS_SPARE_FILES = 256  # for segments, peers and the like
PENDING_BYTES_MAX = 64 * MIB  # commands that are neither ordered nor staged (N3)
PULL_BYTES_MAX = 4 * MIB  # of bodies in one pull: with their heads it still is one frame
PULL_BATCHES_MAX = 4_096  # in one pull: each is a step on the loop, a few microseconds
CACHED_BYTES_MAX = 16 * MIB  # the newest bundles, for readers at the end
CACHED_HEADS_BYTES_MAX = 4 * MIB  # of older bundles that are being read
TOPICS_MAX = 100_000
PARTITIONS_MAX = 1_024  # of one topic
TOPIC_NAME_MAX = 128  # of a-z A-Z 0-9 . _ -, and not "." or ".."

SEGMENT_BYTES = 64 * MIB
FOLLOWABLE_BYTES_MIN = 64 * MIB  # at least so much of the row stays for followers (N6)
SOFT_RESERVE_BYTES = 256 * MIB  # or 2 % of the disk: below it own clients' produces are refused
SOFT_RESERVE_FRACTION = 0.02
HARD_RESERVE_BYTES = 32 * MIB  # preallocated; what frees space must still be written

LANES_MAX = 100_000  # D4: the least recently applied goes first
LANE_RESULTS_MAX = 64  # remembered answers of a lane; fewer where there are very many lanes
LANE_RESULTS_MIN = 8  # the fewest
RESULTS_TOTAL = 500_000  # answers of all lanes, about: 20 MB, at worst 70, however many lanes
LANE_WAITING_MAX = 64  # batches of a lane waiting for room; 1 with when_full = slot
IDS_MAX = 10_000  # `id=` window of a topic, in entries
IDS_TOTAL_MAX = 250_000  # of all topics, which share it: about 400 bytes each
WAITING_MAX = 100_000  # batches waiting for room in all topics; the state keeps a row for each
STAGES_MAX = 100_000  # batches staged at a time; a row in the state each
STAGE_EXPIRY_US = (
    3_600_000_000  # of row time: a job's batch takes minutes, a dead one's garbage goes
)
WRITERS_MAX = 10_000  # of stages, whose last commit is remembered: as many streaming queries
RUNS_MAX = 2_048  # of a partition: pruning by age or bytes is exact to about a 500th of it
RUNS_TOTAL = 2_000_000  # of all partitions: 64 MB, however many partitions there are
RUNS_MIN = 64  # of a partition, even if there are very many
PARTITIONS_PER_ITEM = 64  # pruned for their age, and as many for a policy: others wait for them
FORGOTTEN_PER_COMMAND = 16  # of what a lowered limit leaves too many of: lanes, writers, ids
ENTRY_FUTURE_US_MAX = 30_000_000  # an entry's time is at most this far past the row's time
