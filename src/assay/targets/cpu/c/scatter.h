/* How an update meets what is there: COMBINE is one of these. T is an element as it is stored, W as it is
   computed with, LOAD and STORE lead from one to the other. */
#ifndef SCATTER_H
#define SCATTER_H
#include "odometer.h"
#include "positions.h"
#include "storage.h"

#define put(old, new) (new)
#define add(old, new) STORE(LOAD(old) + LOAD(new))
#define mul(old, new) STORE(LOAD(old) * LOAD(new))
/* NaN wins. */
#define min(old, new) (LOAD(new) < LOAD(old) || LOAD(new) != LOAD(new) ? (new) : (old))
#define max(old, new) (LOAD(new) > LOAD(old) || LOAD(new) != LOAD(new) ? (new) : (old))
#endif
