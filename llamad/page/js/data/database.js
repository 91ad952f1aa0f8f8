// The browser's database of conversations, with one record for each. If the browser has none, such as in a private
// window, they live as long as the page.

const NAME = "llamad";
const STORE = "conversations";

let opening = null;
const memory = new Map();

/** False once it is known that nothing is stored. */
export let isKept = true;

function open() {
  opening ??= new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open(NAME, 1);
    } catch {
      isKept = false;
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => {
      isKept = false;
      resolve(null);
    };
  });
  return opening;
}

async function run(mode, act) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, mode);
    const request = act(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

/** Return all conversations. */
export async function readAll() {
  return (await open()) ? run("readonly", (store) => store.getAll()) : [...memory.values()];
}

/** Return one conversation, or undefined. */
export async function read(id) {
  return (await open()) ? run("readonly", (store) => store.get(id)) : memory.get(id);
}

/** Add or replace a conversation. Rejects if the browser has no room. */
export async function write(conversation) {
  if (await open()) return run("readwrite", (store) => store.put(conversation));
  memory.set(conversation.id, conversation);
}

/** Remove a conversation. */
export async function remove(id) {
  if (await open()) return run("readwrite", (store) => store.delete(id));
  memory.delete(id);
}
