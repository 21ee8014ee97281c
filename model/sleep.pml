/* How a training process sleeps until there is something to do (native/channel/channel.h). WORKERS threads give it work,
 * PHASES pieces each: the callers of collectives and the server of results. SPIN searches for a state in which no thread
 * can continue ("invalid end state"): the process sleeps although there is work.
 *
 * With ANNOUNCED_FIRST, which the process does not use, it reads the event after it has announced its sleep. A waker that
 * was about to wake it from its sleep before, in between takes the announcement back and changes the event. */

byte given, taken;
bool sleeps;
byte event;

active [WORKERS] proctype waker() {
    byte pieces;
    do
    :: pieces < PHASES ->
        pieces++;
        given++;
        if
        :: sleeps ->
            sleeps = false;
            event++
        :: else
        fi
    :: else -> break
    od
}

active proctype process() {
    byte seen;
    do
    :: taken < given -> taken = given
    :: taken == WORKERS * PHASES -> break
    :: else ->
#ifdef ANNOUNCED_FIRST
        sleeps = true;
        seen = event;
#else
        seen = event;
        sleeps = true;
#endif
        if
        :: taken == given -> event != seen  /* FUTEX_WAIT */
        :: else
        fi;
        sleeps = false
    od
}
