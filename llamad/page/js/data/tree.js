// The tree of messages: a conversation branches where a message was edited or an answer was generated again. Pure.
//
// A conversation has `nodes` by id, in the order in which they were made. A node has a `parent` (null for a first
// message), and `chosen` says which child of a node is shown (the key "" means the root).

/** Add a new node below a parent, and choose it. */
export function addNode(conversation, parent, node) {
  const id = nextId(conversation);
  conversation.nodes[id] = { ...node, id, parent };
  conversation.chosen[parent ?? ""] = id;
  return conversation.nodes[id];
}

function nextId(conversation) {
  conversation.lastId = (conversation.lastId ?? 0) + 1;
  return `m${conversation.lastId}`;
}

/** Return the children of a node (null means the root), oldest first. */
export function childrenOf(conversation, parent) {
  return Object.values(conversation.nodes).filter((node) => node.parent === parent);
}

/** Return the nodes that are shown, from first to last. */
export function shownPath(conversation) {
  const path = [];
  const seen = new Set();
  const byParent = groupByParent(conversation);
  for (let parent = null; ;) {
    const children = byParent.get(parent);
    if (!children) return path;
    const chosen = conversation.nodes[conversation.chosen[parent ?? ""]];
    const node = chosen && chosen.parent === parent ? chosen : children.at(-1);
    if (seen.has(node.id)) return path;
    seen.add(node.id);
    path.push(node);
    parent = node.id;
  }
}

function groupByParent(conversation) {
  const groups = new Map();
  for (const node of Object.values(conversation.nodes)) {
    if (groups.has(node.parent)) groups.get(node.parent).push(node);
    else groups.set(node.parent, [node]);
  }
  return groups;
}

/** Return the nodes from the first to this one. */
export function pathTo(conversation, id) {
  const path = [];
  for (let node = conversation.nodes[id]; node; node = conversation.nodes[node.parent]) path.unshift(node);
  return path;
}

/** Return the position of a node among its siblings: {at, count}, from 0. */
export function placeOf(conversation, id) {
  const siblings = childrenOf(conversation, conversation.nodes[id].parent);
  return { at: siblings.findIndex((node) => node.id === id), count: siblings.length };
}

/** Show the sibling that is `step` positions away. */
export function chooseSibling(conversation, id, step) {
  const { parent } = conversation.nodes[id];
  const siblings = childrenOf(conversation, parent);
  const at = siblings.findIndex((node) => node.id === id) + step;
  if (siblings[at]) conversation.chosen[parent ?? ""] = siblings[at].id;
}

/** Remove a node and all below it. */
export function removeNode(conversation, id) {
  const byParent = groupByParent(conversation);
  const { parent } = conversation.nodes[id];
  const doomed = [id];
  for (const one of doomed) {
    for (const child of byParent.get(one) ?? []) doomed.push(child.id);
    delete conversation.nodes[one];
    delete conversation.chosen[one];
  }
  if (conversation.chosen[parent ?? ""] === id) delete conversation.chosen[parent ?? ""];
}
