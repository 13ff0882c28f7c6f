#!/usr/bin/env bash
# Runs Apache Kafka for tests and for work by hand, from its Maven artifacts and without Docker.
#
# What must stay true:
#   - a fetched Kafka appears whole or not at all: it is copied beside its place and renamed;
#   - a broker's folder holds everything the broker writes, its temporary files too, so that nothing is left elsewhere
#     however it ends;
#   - no signal goes to a process that is not known to be the broker of that folder, and nothing is deleted that this
#     script did not make.
#
# Standard output carries the answer (an address, a path), everything said to a person goes to standard error.
set -euo pipefail

readonly EXIT_FAILED=1 EXIT_USAGE=2 EXIT_MISSING=3
# Seconds that a broker gets to start, and to stop before it is killed.
readonly START_TIMEOUT=120 STOP_TIMEOUT=30

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
project=$(cd "$here/../.." && pwd -P)
version=$(sed -n 's:.*<kafka\.version>\(.*\)</kafka\.version>.*:\1:p' "$here/pom.xml")
store=${FRONTA_KAFKA_DIR:-$project/.kafka}
case $store in /*) ;; *) store=$PWD/$store ;; esac
home=$store/$version
lib=$home/lib

usage() {
	cat <<TEXT
Runs Apache Kafka $version, one process as broker and controller, on loopback addresses.

  kafka.sh fetch [MAVEN-OPTION...]   copy Kafka to $home, once
  kafka.sh start DIR [OPTION...]     start a broker that keeps everything in DIR, print its address
  kafka.sh stop DIR                  stop it and wait for its end; DIR keeps its data
  kafka.sh kill DIR                  end it with SIGKILL, as a crash would
  kafka.sh status DIR                print its address; exit code 1 when it does not run
  kafka.sh clean DIR                 stop it and delete what it wrote
  kafka.sh clean                     delete the fetched Kafka, and what jars copied
  kafka.sh path                      print the folder of the fetched jar files
  kafka.sh jars DIR [MAVEN-OPTION...]
                                     copy what DIR/pom.xml names to $store, once, and print the folder of the jar files
  kafka.sh env                       print shell lines that set KAFKA_VERSION, KAFKA_JAVA, KAFKA_CLASSPATH

Options of start. The first two are fixed when DIR is new; later starts keep them.
  --port N               port for clients (default: a free one between 10000 and 31999)
  --sasl USER:PASSWORD   clients log in with SCRAM-SHA-256 or SCRAM-SHA-512; DIR/client.properties is for Kafka's tools
  --set NAME=VALUE       a broker setting, such as offset.metadata.max.bytes=8192; it stays for later starts in DIR

Environment: JAVA_HOME (Java 17 or later; default: java on the PATH), KAFKA_OPTS (more options for the broker's Java, such as
-Xmx2g or -Dkafka.log.level=INFO), FRONTA_KAFKA_DIR (where Kafka is fetched to; default: .kafka in the project).

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 Java or Maven is missing.
TEXT
}

say() { printf 'kafka.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit "$EXIT_FAILED"; }
wrong() { say "$*"; say "'kafka.sh help' tells the usage"; exit "$EXIT_USAGE"; }
missing() { say "$*"; exit "$EXIT_MISSING"; }

# lock FILE: waits until no other run of this script holds FILE, and holds it until this one ends. Where there is no flock,
# runs are not kept apart: a fetch may then be done twice, and is still right, since it ends in a rename.
lock() {
	exec 9>"$1"
	if command -v flock >/dev/null; then flock 9; fi
}

find_java() {
	if [[ -n ${JAVA_HOME:-} ]]; then
		java=$JAVA_HOME/bin/java
		[[ -x $java ]] || missing "JAVA_HOME is $JAVA_HOME, but there is no $java"
	else
		java=$(command -v java) || missing "Java is missing: install Java 17 or later, or set JAVA_HOME"
	fi
	local major
	major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
	[[ -n $major && $major -ge 17 ]] || missing "Kafka $version needs Java 17 or later; $java is version ${major:-unknown}"
}

# fetched FOLDER POM: whether FOLDER holds what POM names. The copy of pom.xml is its mark. It is compared, not only looked for:
# a changed pom.xml, such as one with another dependency, is fetched again.
fetched() { cmp -s "$2" "$1/pom.xml"; }

# fetch_into FOLDER POM WHAT [MAVEN-OPTION...]: copies the artifacts that POM names, and what they depend on, to FOLDER/lib, once.
fetch_into() {
	local folder=$1 pom=$2 what=$3
	shift 3
	if fetched "$folder" "$pom"; then return; fi
	command -v mvn >/dev/null || missing "Maven is missing: install it (the command mvn) to fetch $what"
	mkdir -p "$store"
	lock "$store/lock"
	if fetched "$folder" "$pom"; then return; fi

	say "fetching $what to $folder"
	local work
	work=$(mktemp -d "$store/fetch.XXXXXX")
	# shellcheck disable=SC2064 # the folder of now is meant
	trap "rm -rf '$work'" EXIT
	if ! mvn --batch-mode --quiet -Dstyle.color=never "$@" -f "$pom" dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$work/lib" >"$work/mvn.log" 2>&1; then
		tail -n 20 "$work/mvn.log" >&2
		fail "Maven could not fetch $what; its last lines are above"
	fi
	[[ -d $work/lib ]] || fail "Maven ended without a jar file of $what"
	mkdir "$work/new"
	mv "$work/lib" "$work/new/lib"
	cp "$pom" "$work/new/pom.xml"
	if [[ -e $folder ]]; then mv "$folder" "$work/old"; fi
	mv "$work/new" "$folder"
	rm -rf "$work"
	trap - EXIT
	say "fetched $(find "$folder/lib" -name '*.jar' | wc -l | tr -d ' ') jar files"
}

fetch() {
	find_java
	fetch_into "$home" "$here/pom.xml" "Apache Kafka $version (about 55 MB)" "$@"
	[[ -f $lib/kafka_2.13-$version.jar ]] || fail "Maven ended without kafka_2.13-$version.jar"
}

jars() {
	[[ $# -ge 1 && -n $1 && $1 != -* ]] || wrong "jars of which folder? DIR is missing"
	[[ -f $1/pom.xml ]] || fail "there is no $1/pom.xml"
	local from folder
	from=$(cd "$1" && pwd -P)
	folder=$store/jars-${from##*/}
	shift
	find_java
	fetch_into "$folder" "$from/pom.xml" "what $from/pom.xml names" "$@"
	printf '%s\n' "$folder/lib"
}

# use_folder DIR: sets dir to the full name of a broker's folder. Kafka reads a comma as the end of a folder's name, and a
# backslash starts an escape in a properties file.
use_folder() {
	[[ $# -ge 1 && -n $1 && $1 != -* ]] || wrong "which folder? The broker's DIR is missing"
	[[ -d $1 ]] || fail "there is no folder $1"
	dir=$(cd "$1" && pwd -P)
	case $dir in *[,\\]*) wrong "$dir: the folder's name must not hold a comma or a backslash" ;; esac
	[[ $dir != / ]] || wrong "the folder must not be /"
}

# running: whether the process named in the folder is alive and is the broker of this folder (a number may have passed on to
# another process since). Sets pid.
running() {
	pid=$(cat "$dir/broker.pid" 2>/dev/null) || return 1
	[[ $pid =~ ^[0-9]+$ ]] || return 1
	kill -0 "$pid" 2>/dev/null || return 1
	local arguments
	if [[ -r /proc/$pid/cmdline ]]; then
		arguments=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) || return 1
	else
		arguments=$(ps -ww -o args= -p "$pid") || return 1
	fi
	[[ $arguments == *"kafka.Kafka $dir/server.properties"* ]]
}

# free_port: sets port to one that nobody listens on. It is taken below the ports that systems give to outgoing
# connections (from 32768 on Linux, from 49152 elsewhere): while a broker is down, a client's own connection could
# otherwise get the broker's port, and the broker could not come back.
free_port() {
	local attempt
	for attempt in {1..100}; do
		port=$((10000 + RANDOM % 22000))
		if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
	done
	fail "no free port found between 10000 and 31999 after $attempt attempts"
}

# write_settings CLIENT-PORT [USER PASSWORD]: the settings and the formatted storage of a new folder.
write_settings() {
	local client=$1 user=${2:-} password=${3:-} protocol=PLAINTEXT controller broker cluster
	local listeners names=() scram=()
	free_port; controller=$port
	listeners=CLIENT://127.0.0.1:$client
	local map=CLIENT:PLAINTEXT inter=CLIENT
	if [[ -n $user ]]; then
		# The broker talks to itself too, as a coordinator: a listener of its own spares it the login.
		protocol=SASL_PLAINTEXT
		free_port; broker=$port
		listeners+=,BROKER://127.0.0.1:$broker
		map=CLIENT:SASL_PLAINTEXT,BROKER:PLAINTEXT
		inter=BROKER
	fi
	{
		cat "$here/server.properties"
		printf '\n'
		printf '%s\n' "listeners=$listeners,CONTROLLER://127.0.0.1:$controller" "advertised.listeners=$listeners" \
			"listener.security.protocol.map=$map,CONTROLLER:PLAINTEXT" "inter.broker.listener.name=$inter" \
			controller.listener.names=CONTROLLER "controller.quorum.bootstrap.servers=127.0.0.1:$controller" \
			"log.dirs=$dir/data"
		if [[ -n $user ]]; then
			printf '%s\n' listener.name.client.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
			local mechanism
			for mechanism in scram-sha-256 scram-sha-512; do
				printf '%s\n' "listener.name.client.$mechanism.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;"
			done
		fi
	} >"$dir/server.properties"
	{
		printf '%s\n' "bootstrap.servers=127.0.0.1:$client" "security.protocol=$protocol"
		if [[ -n $user ]]; then
			printf '%s\n' sasl.mechanism=SCRAM-SHA-256 \
				"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"$user\" password=\"$password\";"
		fi
	} >"$dir/client.properties"
	chmod 600 "$dir/client.properties"

	# A random cluster id of 22 characters; the first is fixed, since a dash there would be read as an option.
	cluster=A$(head -c 32 /dev/urandom | base64 | tr -d '\n=' | tr '+/' '-_' | cut -c 1-21)
	if [[ -n $user ]]; then
		local hash
		for hash in 256 512; do scram+=(--add-scram "SCRAM-SHA-$hash=[name=$user,password=$password]"); done
	fi
	if ! run_java -XX:TieredStopAtLevel=1 -cp "$lib/*" kafka.tools.StorageTool format --standalone \
		--cluster-id "$cluster" --config "$dir/server.properties" ${scram[@]+"${scram[@]}"} >"$dir/broker.log" 2>&1; then
		cat "$dir/broker.log" >&2
		rm -f "$dir/server.properties"
		fail "could not format the storage in $dir"
	fi
}

# run_java ARGUMENT...: Java with the options and the log configuration of the broker, apart from this script's lock.
run_java() {
	"$java" @"$here/jvm.options" -Djava.io.tmpdir="$dir/tmp" -Dlog4j2.configurationFile="$here/log4j2.xml" "$@" 9>&-
}

# logged SIZE TEXT: whether the broker logged TEXT since its log had SIZE bytes. Not grep -q: it ends at the first match, and
# the failed write of tail would then count as a failed search.
logged() { tail -c "+$(($1 + 1))" "$dir/broker.log" | grep -F "$2" >/dev/null; }

# run_broker: starts the process and waits until it serves. Returns 1 when it ended instead.
run_broker() {
	local before=0 deadline=$((SECONDS + START_TIMEOUT))
	if [[ -f $dir/broker.log ]]; then before=$(wc -c <"$dir/broker.log"); fi
	# shellcheck disable=SC2086 # KAFKA_OPTS is a list
	nohup "$java" @"$here/jvm.options" -Djava.io.tmpdir="$dir/tmp" -Dlog4j2.configurationFile="$here/log4j2.xml" \
		${KAFKA_OPTS:-} -cp "$lib/*" kafka.Kafka "$dir/server.properties" >>"$dir/broker.log" 2>&1 </dev/null 9>&- &
	pid=$!
	printf '%s\n' "$pid" >"$dir/broker.pid"
	# Whoever interrupts the start does not want a broker.
	# shellcheck disable=SC2064 # the values of now are meant
	trap "kill -KILL $pid 2>/dev/null; rm -f '$dir/broker.pid'; exit $EXIT_FAILED" INT TERM HUP
	while ! logged "$before" 'Kafka Server started'; do
		if ! kill -0 "$pid" 2>/dev/null; then
			rm -f "$dir/broker.pid"
			trap - INT TERM HUP
			return 1
		fi
		if ((SECONDS >= deadline)); then
			kill -KILL "$pid" 2>/dev/null || true
			rm -f "$dir/broker.pid"
			fail "the broker was not ready after $START_TIMEOUT seconds and was killed; see $dir/broker.log"
		fi
		sleep 0.1
	done
	trap - INT TERM HUP
	disown "$pid"
}

# address: prints the clients' address of the folder's broker.
address() { sed -n 's/^bootstrap\.servers=//p' "$dir/client.properties"; }

start() {
	[[ $# -ge 1 && -n $1 && $1 != -* ]] || wrong "start in which folder? DIR is missing"
	local name=$1 wanted='' login='' user='' password='' settings=()
	shift
	while (($# > 0)); do
		case $1 in
		--port)
			[[ ${2:-} =~ ^[0-9]{1,5}$ ]] && ((10#$2 >= 1 && 10#$2 <= 65535)) || wrong "--port needs a number from 1 to 65535, not '${2:-}'"
			wanted=$((10#$2))
			;;
		--sasl)
			[[ ${2:-} =~ ^[A-Za-z0-9._-]+:[A-Za-z0-9._-]+$ ]] || wrong "--sasl needs USER:PASSWORD of letters, digits, dots, dashes and underscores"
			login=$2 user=${2%%:*} password=${2#*:}
			;;
		--set)
			[[ ${2:-} =~ ^[a-z0-9._-]+=.*$ ]] || wrong "--set needs NAME=VALUE, not '${2:-}'"
			settings+=("$2")
			;;
		*) wrong "start has no option $1" ;;
		esac
		shift 2
	done
	fetch
	mkdir -p "$name"
	use_folder "$name"
	lock "$dir/broker.lock"

	local new=
	if [[ ! -f $dir/server.properties ]]; then
		new=yes
		if [[ -e $dir/data ]]; then fail "$dir/data is there but $dir/server.properties is not: give another folder"; fi
	else
		local has
		has=$(address)
		[[ -z $wanted || $has == *":$wanted" ]] || fail "the broker in $dir has the address $has; use another folder, or clean this one, for port $wanted"
		if [[ -n $login ]] && ! grep -qF "username=\"$user\" password=\"$password\"" "$dir/client.properties"; then
			fail "the broker in $dir was made with another login, or none; use another folder, or clean this one"
		fi
		if running; then
			((${#settings[@]} == 0)) || fail "the broker in $dir is running (process $pid) and reads its settings at start: stop it first"
			say "the broker in $dir is running already (process $pid)"
			address
			return
		fi
	fi

	mkdir -p "$dir/tmp"
	local attempt from client
	for attempt in 1 2 3; do
		if [[ -n $new ]]; then
			if [[ -n $wanted ]]; then client=$wanted; else free_port; client=$port; fi
			write_settings "$client" "$user" "$password"
		fi
		if ((attempt == 1 || ${#new} > 0)) && ((${#settings[@]} > 0)); then
			printf '%s\n' "${settings[@]}" >>"$dir/server.properties"
		fi
		from=$(wc -c <"$dir/broker.log")
		if run_broker; then
			say "Apache Kafka $version runs in $dir (process $pid)"
			address
			return
		fi
		# Somebody took a port between our look at it and the broker's; with ports of our own choice others will do.
		if ! logged "$from" 'Address already in use'; then break; fi
		if [[ -z $new || -n $wanted ]]; then
			say "another process has taken a port that the broker in $dir needs"
			break
		fi
		rm -rf "$dir/data" "$dir/server.properties"
	done
	tail -c "+$((from + 1))" "$dir/broker.log" | sed '/^[[:space:]]/d' | tail -n 20 >&2
	if [[ -n $new ]]; then rm -rf "$dir/data" "$dir/server.properties" "$dir/client.properties"; fi
	fail "the broker ended while it started; its last lines are above, all of them in $dir/broker.log"
}

# await_end SECONDS: whether the broker's process ended in time.
await_end() {
	local deadline=$((SECONDS + $1))
	while running; do
		if ((SECONDS >= deadline)); then return 1; fi
		sleep 0.05
	done
}

stop() {
	use_folder "$@"
	if ! running; then
		rm -f "$dir/broker.pid"
		say "no broker runs in $dir"
		return
	fi
	kill -TERM "$pid" 2>/dev/null || true
	if ! await_end "$STOP_TIMEOUT"; then
		say "the broker in $dir did not stop within $STOP_TIMEOUT seconds: it is killed"
		kill -KILL "$pid" 2>/dev/null || true
		await_end 10 || fail "process $pid could not be killed"
	fi
	rm -rf "$dir/broker.pid" "$dir/tmp"
	say "the broker in $dir has stopped"
}

kill_broker() {
	use_folder "$@"
	running || fail "no broker runs in $dir"
	kill -KILL "$pid" 2>/dev/null || true
	await_end 10 || fail "process $pid could not be killed"
	rm -rf "$dir/broker.pid" "$dir/tmp"
	say "the broker in $dir was killed"
}

status() {
	use_folder "$@"
	running || fail "no broker runs in $dir"
	address
}

clean() {
	if (($# == 0)); then
		local folder
		for folder in "$home" "$store"/jars-*; do
			if fetched "$folder" "$folder/pom.xml"; then
				rm -rf "$folder"
				say "deleted $folder"
			fi
		done
		rm -f "$store/lock"
		if [[ -d $store ]]; then rmdir "$store" 2>/dev/null || true; fi
		return
	fi
	if [[ ! -e $1 ]]; then
		say "there is no folder $1"
		return
	fi
	use_folder "$@"
	if running; then stop "$dir"; fi
	# By name: the folder may be one that holds other things too.
	if [[ -f $dir/server.properties || -f $dir/broker.log ]]; then
		rm -rf "$dir/data" "$dir/tmp"
		rm -f "$dir/server.properties" "$dir/client.properties" "$dir/broker.log" "$dir/broker.pid" "$dir/broker.lock"
	fi
	if rmdir "$dir" 2>/dev/null; then say "deleted $dir"; else say "kept $dir: it holds files that are not the broker's"; fi
}

command=${1:-help}
if (($# > 0)); then shift; fi
case $command in
fetch) fetch "$@" ;;
start) start "$@" ;;
stop) stop "$@" ;;
kill) kill_broker "$@" ;;
status) status "$@" ;;
clean) clean "$@" ;;
path) printf '%s\n' "$lib" ;;
jars) jars "$@" ;;
env)
	find_java
	fetched "$home" "$here/pom.xml" || fail "Apache Kafka $version is not fetched yet: run 'kafka.sh fetch'"
	printf 'export %s=%q\n' KAFKA_VERSION "$version" KAFKA_JAVA "$java" KAFKA_CLASSPATH "$lib/*"
	;;
help | -h | --help) usage ;;
*) wrong "there is no command $command" ;;
esac
